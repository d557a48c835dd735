"""`python -m trainers.export`."""

from trainers.entry import export

if __name__ == "__main__":
    export()
