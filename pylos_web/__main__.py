"""`python -m pylos_web` is `pylos-web`."""

import sys

from pylos_web.cli import main

if __name__ == "__main__":
    sys.exit(main())
