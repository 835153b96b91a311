"""What /usr/bin/gpuwatch runs, as that program."""

import sys

from gpuwatch.cli.main import main

sys.argv[0] = "/usr/bin/gpuwatch"
main()
