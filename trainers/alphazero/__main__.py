"""`python -m trainers.alphazero`."""

from trainers.alphazero.cli import main

if __name__ == "__main__":
    main()
