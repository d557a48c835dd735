"""`python -m trainers.play`."""

import sys

from trainers.play.terminal import main

sys.exit(main())
