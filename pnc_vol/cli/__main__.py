"""``python -m pnc_vol.cli`` is ``pnc-vol``."""

from pnc_vol.cli.main import main

main()
