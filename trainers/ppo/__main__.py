"""`python -m trainers.ppo`."""

from trainers.entry import ppo

if __name__ == "__main__":
    ppo()
