"""Where the study runs: on this machine, or by a batch system; change `cluster` to what yours asks for."""

import sys
from pathlib import Path

site_configuration = {
    "systems": [
        {
            "name": "here",
            "descr": "this machine, without a batch system",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "local",
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "environs": ["builtin"],
                    # mpirun is installed beside Python, also where the environment is not activated
                    "prepare_cmds": [f'export PATH="{Path(sys.executable).parent}:$PATH"'],
                    "max_jobs": 1,  # one after another: they would disturb each other
                }
            ],
        },
        {
            "name": "cluster",
            "descr": "a cluster with Slurm; for PBS: scheduler 'pbs', launcher 'mpiexec'",
            "hostnames": ["login.*"],
            "partitions": [
                {
                    "name": "nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "environs": ["builtin"],
                    "access": ["--partition=standard", "--account=project"],
                    "prepare_cmds": ["module load python"],
                    "max_jobs": 1,
                }
            ],
        },
    ],
}
