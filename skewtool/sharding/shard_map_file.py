"""The file of a ShardMap: tensor `token_at` int32 [P, S]; header `home_slots`, `vocab_size`, `real_vocab`, `fingerprint`.

Nothing of the machine, the time or the way it was made is in it: equal maps are equal files.
"""

from pathlib import Path

from skewtool.errors import FileFormatError, MapError
from skewtool.sharding.shard_map import ShardMap
from skewtool.storage import load_tensor_file, save_tensor_file

__all__ = ["KIND", "VERSION", "load_shard_map", "save_shard_map"]

KIND = "shard-map"
VERSION = "1.0"


def save_shard_map(shard_map: ShardMap, path: Path) -> None:
    """Writes `shard_map` to `path`, beside it first."""
    header = {
        "home_slots": shard_map.home_slots,
        "vocab_size": shard_map.vocab_size,
        "real_vocab": shard_map.real_vocab,
        "fingerprint": shard_map.fingerprint,
    }
    save_tensor_file(path, KIND, VERSION, header, {"token_at": shard_map.token_at})


def load_shard_map(path: Path) -> ShardMap:
    """Reads a map file and checks its digest, invariants and fingerprint."""
    header, tensors = load_tensor_file(path, KIND, VERSION)
    wrong = [name for name in ("home_slots", "vocab_size", "real_vocab") if not isinstance(header.get(name), int)]
    wrong += [name for name in ("fingerprint",) if not isinstance(header.get(name), str)]
    wrong += [name for name in ("token_at",) if name not in tensors]
    if wrong:
        raise FileFormatError(f"{path} is not a complete map: it lacks a good {', '.join(wrong)}")
    try:
        shard_map = ShardMap(tensors["token_at"], header["home_slots"], header["vocab_size"], header["real_vocab"])
    except MapError as error:
        raise MapError(f"{path}: {error}") from None
    if shard_map.fingerprint != header["fingerprint"]:
        raise FileFormatError(f"{path} holds another map than its fingerprint says; write it again")
    return shard_map
