"""Text that is tokenized on the way: plain files (one document each) and JSON lines (one document a line).

Documents of JSON lines get the special tokens of the tokenizer's post-processor, as training pipelines do. A plain file
is encoded in pieces of about 1 MiB, cut before a line break between two letters or digits, without special tokens: the
byte-level pre-tokenizers of GPT-2 and Llama split there anyway, so the pieces give the tokens of the whole.
"""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skewtool.corpus.compressed import open_decompressed
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.read_ahead import in_flight
from skewtool.corpus.source import BLOCK_TOKENS, Ids, Progress, Source
from skewtool.corpus.tokenizer import TokenizerFile
from skewtool.errors import CorpusError

__all__ = ["open_json_text", "open_text"]

_PIECE_CHARACTERS = 1 << 20
_SAFE_CUT = re.compile(r"(?<=[^\W_])\n(?=[^\W_])")


@dataclass(frozen=True)
class TextSource(Source):
    """One text file; ids are made by `tokenizer` (in parallel, by its own threads) as they are asked for."""

    tokenizer: TokenizerFile
    column: str

    def blocks(
        self,
        start: int = 0,
        stop: int | None = None,
        block_tokens: int = BLOCK_TOKENS,
        progress: Progress | None = None,
    ) -> Iterator[Ids]:
        if start or stop is not None:
            raise CorpusError(f"{self.path} is text: where token {start} begins is unknown; it can only be read whole")
        yield from in_flight(self.path, self._encoded(block_tokens, progress))

    def _encoded(self, block_tokens: int, progress: Progress | None) -> Iterator[Ids]:
        is_jsonl = self.format == "jsonl"
        documents = self._json_lines() if is_jsonl else self._pieces()
        for batch in _batched(documents):
            ids = self.tokenizer.encode_batch(batch, add_special_tokens=is_jsonl)
            if progress is not None:
                progress(sum(len(text.encode()) for text in batch))
            yield from (ids[i : i + block_tokens] for i in range(0, ids.size, block_tokens))

    def _json_lines(self) -> Iterator[str]:
        with open_decompressed(self.path) as (lines, _):
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield self._text_of(line, number)

    def _text_of(self, line: bytes, number: int) -> str:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{self.path}, line {number}: not a JSON object ({error})") from None
        text = document.get(self.column) if isinstance(document, dict) else None
        if not isinstance(text, str):
            fields = ", ".join(sorted(document)) if isinstance(document, dict) else type(document).__name__
            raise CorpusError(
                f"{self.path}, line {number}: no text in field '{self.column}' (found: {fields}); pass --column"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CorpusError(f"{self.path}, line {number}: half a surrogate pair, which is no text ({error})") from None
        return text

    def _pieces(self) -> Iterator[str]:
        held = [""]  # joined only when a cut is found, so that text without one is not copied again and again
        try:
            with open_decompressed(self.path) as (stream, _):
                file = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
                while more := file.read(_PIECE_CHARACTERS):
                    tail = held[-1][-2:]  # a cut may lie between two reads
                    cuts = [match.start() - len(tail) for match in _SAFE_CUT.finditer(tail + more)]
                    held.append(more)
                    if cuts:
                        text = "".join(held)
                        cut = len(text) - len(more) + cuts[-1]
                        yield text[:cut]
                        held = [text[cut:]]
        except UnicodeDecodeError as error:
            raise CorpusError(f"{self.path} is not UTF-8 text: {error}") from None
        if any(held):
            yield "".join(held)


def _batched(texts: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= 2 * _PIECE_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def open_text(path: Path, name: str, options: ReadOptions) -> list[TextSource]:
    """Opens a plain text file, one document. Errors: CorpusError without a tokenizer."""
    return [_open(path, name, options, "text", num_documents=1)]


def open_json_text(path: Path, name: str, options: ReadOptions) -> TextSource:
    """Opens JSON lines whose field `options.column` (by default "text") holds text. Without a tokenizer: CorpusError."""
    return _open(path, name, options, "jsonl", num_documents=None)


def _open(path: Path, name: str, options: ReadOptions, kind: str, num_documents: int | None) -> TextSource:
    tokenizer = options.loaded_tokenizer
    if tokenizer is None:
        raise CorpusError(f"{path} is text ({kind}); pass --tokenizer tokenizer.json to turn it into ids")
    return TextSource(
        path, name, kind, np.dtype(np.uint32), None, num_documents, path.stat().st_size, (),
        tokenizer=tokenizer, column=options.column or "text",
    )  # fmt: skip
