"""`python -m pylos_web` is `pylos-web`."""

from trainers.entry import web

if __name__ == "__main__":
    web()
