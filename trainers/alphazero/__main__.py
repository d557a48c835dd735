"""`python -m trainers.alphazero`."""

from trainers.entry import alphazero

if __name__ == "__main__":
    alphazero()
