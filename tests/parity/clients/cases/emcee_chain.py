"""emcee, by its HDFBackend: a chain of 32 walkers, of which each step is kept in the file when it is done.

python emcee_chain.py FILE STEPS
"""

import sys

import emcee
import numpy as np

path, steps = sys.argv[1], int(sys.argv[2])


def log_probability(x: np.ndarray) -> float:
    return -0.5 * float(x @ x)


backend = emcee.backends.HDFBackend(path)
backend.reset(32, 5)
sampler = emcee.EnsembleSampler(32, 5, log_probability, backend=backend)
sampler.random_state = np.random.RandomState(1).get_state()
sampler.run_mcmc(np.random.RandomState(2).randn(32, 5), steps)

again = emcee.backends.HDFBackend(path, read_only=True)
chain = again.get_chain()
print(chain.shape, again.iteration, again.accepted.sum(), repr(chain.sum()), repr(again.get_log_prob().sum()))
