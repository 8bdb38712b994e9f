"""One BLAS thread: more wait for one another on matrices of this size, and round differently.

On a busy machine the Gaussian-process estimate at n = 214 took 70 ms with two threads and 2.6 ms with one; the fits of
``pk.sample`` in ten dimensions took 2.6 times the processor time. Setting the limit takes 11 us.
"""

import functools
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> Any:
    """A context in which BLAS has one thread, in the whole process."""
    return _blas().limit(limits=1)


@functools.cache
def _blas() -> Any:
    """The BLAS libraries of this process."""
    return ThreadpoolController().select(user_api="blas")
