"""`python -m trainers.export`."""

import sys

from trainers.export.cli import main

sys.exit(main())
