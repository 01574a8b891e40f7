"""Random numbers: TH's generator (a Mersenne Twister) and TH's distributions, for single values and whole tensors.

Functions draw from `default_generator` unless a generator is given. After `manual_seed(n)`, numbers are the same in
each run; without it, every process takes its own seed from the system, also a spawned or forked one. A process that is
forked after `manual_seed` goes on with a copy of the same stream, as in TH and torch; seed each worker with its rank if
they should differ. A spawned one starts with a seed from the system.
"""

from __future__ import annotations

from .._missing import suggest as _suggest
from .counts import binomial, poisson
from .distributions import (
    bernoulli,
    bernoulli_,
    cauchy_,
    exponential_,
    geometric_,
    log_normal_,
    normal,
    normal_,
    random_,
    uniform_,
)
from .generator import (
    STATE_BYTES,
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from .sampling import (
    multinomial,
    multinomial_alias_draw,
    multinomial_alias_setup,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
)

__all__ = [
    "STATE_BYTES",
    "Generator",
    "bernoulli",
    "bernoulli_",
    "binomial",
    "cauchy_",
    "default_generator",
    "exponential_",
    "geometric_",
    "get_rng_state",
    "initial_seed",
    "log_normal_",
    "manual_seed",
    "multinomial",
    "multinomial_alias_draw",
    "multinomial_alias_setup",
    "normal",
    "normal_",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random_",
    "randperm",
    "seed",
    "set_rng_state",
    "uniform_",
]
_suggest(globals())
