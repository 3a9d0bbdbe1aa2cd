"""`TokenizerFile`: a tokenizer.json, for its three vocabulary sizes, for encoding text and for showing tokens."""

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from skewtool.errors import CorpusError

__all__ = ["TokenizerFile"]


class TokenizerFile:
    """A tokenizer of the `tokenizers` library.

    `base_size` counts the model's own tokens, `size_with_added` also the added ones, and `num_ids` is the highest id
    plus one: added tokens may sit at sparse ids, and a table needs a row for each hole. A model's embedding may have
    more rows still.
    """

    def __init__(self, path: Path) -> None:
        """Loads the file. Errors: CorpusError when it is not a tokenizer.json."""
        from tokenizers import Tokenizer

        if not path.is_file():
            raise CorpusError(f"there is no tokenizer file {path}")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise CorpusError(f"{path} is not a tokenizer.json that can be read: {error}") from None
        # A file made for training may cut or pad what it encodes; a corpus has neither.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.path = path
        self._stored_id = self._renumbering(path)

    def _renumbering(self, path: Path) -> npt.NDArray[np.uint32] | None:
        """The id in the file for each id of the library, which numbers added tokens on from the last one.

        None where they agree. A model trained with sparse ids, as [PAD] at the end of its table, knows those of the file.
        """
        library = self._tokenizer.get_vocab(with_added_tokens=True)
        stored = np.arange(max(library.values(), default=-1) + 1, dtype=np.uint32)
        for token in json.loads(path.read_text(encoding="utf-8")).get("added_tokens") or ():
            stored[library[token["content"]]] = token["id"]
        return None if (stored == np.arange(stored.size)).all() else stored

    @property
    def base_size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=False))

    @cached_property
    def _ids(self) -> dict[str, int]:
        library = self._tokenizer.get_vocab(with_added_tokens=True)
        if self._stored_id is None:
            return dict(library)
        return {token: int(self._stored_id[token_id]) for token, token_id in library.items()}

    @property
    def size_with_added(self) -> int:
        return len(set(self._ids.values()))

    @property
    def num_ids(self) -> int:
        return max(self._ids.values(), default=-1) + 1

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the pairs of id and token: equal for files that differ only in layout."""
        digest = hashlib.sha256()
        for token, token_id in sorted(self._ids.items(), key=lambda item: (item[1], item[0])):
            digest.update(f"{token_id}\0{token}\0".encode())
        return digest.hexdigest()

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool) -> npt.NDArray[np.uint32]:
        """The ids of all texts, one after the other: uint32."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        parts = [np.asarray(encoding.ids, np.uint32) for encoding in encodings]
        ids = np.concatenate(parts) if parts else np.empty(0, np.uint32)
        return ids if self._stored_id is None else self._stored_id[ids]

    def token_text(self, token_id: int) -> str:
        """The text of one token as a reader would see it; ``<id 13>`` where no token has this id."""
        if self._stored_id is not None:
            places = np.flatnonzero(self._stored_id == token_id)
            if not places.size:
                return f"<id {token_id}>"
            token_id = int(places[0])
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return f"<id {token_id}>"
        decoded = str(self._tokenizer.decode([token_id], skip_special_tokens=False))
        return decoded if decoded and "\ufffd" not in decoded else str(token)
