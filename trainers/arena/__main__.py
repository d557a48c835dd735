"""`python -m trainers.arena`."""

import sys

from trainers.arena.cli import main

sys.exit(main())
