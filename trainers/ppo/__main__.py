"""`python -m trainers.ppo`."""

from trainers.ppo.cli import main

if __name__ == "__main__":
    main()
