"""`partition`: from loads, or a profile, to a ShardMap."""

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError
from skewtool.profiling import Profile
from skewtool.sharding.bursts import Bursts
from skewtool.sharding.loads import Load, checked_loads, loads_of
from skewtool.sharding.shard_map import ShardMap
from skewtool.sharding.strategies import KEEPS_ID_ORDER, STRATEGIES

__all__ = ["partition", "real_vocab_of"]


def partition(
    counts_or_profile: Profile | npt.ArrayLike,
    num_shards: int,
    strategy: str = "balanced",
    *,
    load: Load = "unique",
    tokens_per_rank: int | None = None,
    real_vocab: int | None = None,
    pad_to: int = 1,
    seed: int = 0,
) -> ShardMap:
    """Maps ids to shards: equal rows (within one) and, with "balanced", load as even as can be.

    From a Profile the load of an id is chosen by `load` and `tokens_per_rank` (default: the profile's longest window);
    for unique load "balanced" also keeps ids apart that burst together in the profile's sampled windows.
    A vector of V whole numbers, one per id, is taken as the loads themselves. Ids from `real_vocab` on are padding: they
    have rows, spread evenly, but must have no load (default: what the profile's tokenizer says, else none). `pad_to`
    rounds the home slots per shard up to a multiple. `seed` is for "random".

    Errors: MapError for loads that are no whole numbers of at least 0, for padding ids with load, and for parameters out
    of range; ProfileError when the profile lacks windows of `tokens_per_rank` tokens.
    """
    bursts = None
    if isinstance(counts_or_profile, Profile):
        loads = loads_of(counts_or_profile, load, tokens_per_rank)
        if load == "unique" and num_shards > 0:
            bursts = Bursts.of(counts_or_profile, tokens_per_rank or counts_or_profile.tokens_per_rank, num_shards)
        real_vocab = real_vocab_of(counts_or_profile) if real_vocab is None else real_vocab
    else:
        loads = checked_loads(counts_or_profile)
        real_vocab = loads.size if real_vocab is None else real_vocab
    if strategy not in STRATEGIES:
        raise MapError(f"unknown strategy {strategy!r}; known are {', '.join(STRATEGIES)}")
    if num_shards < 1:
        raise MapError(f"the number of shards must be at least 1, got {num_shards}")
    if not 1 <= real_vocab <= loads.size:
        raise MapError(f"real_vocab must be 1 to the {loads.size} ids of the loads, got {real_vocab}")
    if loads[real_vocab:].any():
        token = real_vocab + int(np.argmax(loads[real_vocab:] > 0))
        raise MapError(
            f"id {token} has load {loads[token]} but is a padding id (real_vocab is {real_vocab}); raise real_vocab, or "
            "profile again with the right tokenizer"
        )
    if strategy in KEEPS_ID_ORDER:
        shard_of = STRATEGIES[strategy](loads, num_shards, seed)
    else:
        real = STRATEGIES[strategy](loads[:real_vocab], num_shards, seed, bursts)
        shard_of = _spread_padding(real, loads.size, num_shards)
    return ShardMap.from_homes(shard_of, num_shards, real_vocab=real_vocab, pad_to=pad_to)


def real_vocab_of(profile: Profile) -> int:
    """Ids that are tokens: as many as the profile's tokenizer has, all where it is not known."""
    return profile.vocab_size if profile.tokenizer is None else min(profile.tokenizer.num_ids, profile.vocab_size)


def _spread_padding(real: npt.NDArray[np.int32], vocab_size: int, num_shards: int) -> npt.NDArray[np.int32]:
    """Gives padding ids to the shards in turn, those with fewer rows first, so that all rows stay equal within one."""
    rows = np.bincount(real, minlength=num_shards)
    turn = np.argsort(rows, kind="stable")
    padding = turn[np.arange(vocab_size - real.size) % num_shards]
    return np.concatenate([real, padding]).astype(np.int32)
