"""Fetches a model's files: goes on where an earlier try ended, checks the hash, and only then gives them their name."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..engine.gguf_info import read_info
from ..engine.plan import gib
from ..errors import UserError
from .hub import Hub, RemoteFile, RemoteModel

_CHUNK = 8 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes of all files together."""

    stage: str
    done: int
    total: int


class Stopped(Exception):
    """The person stopped it; what was fetched is kept for the next try."""


class Pull:
    """One model on its way into a folder. Methods block: call them from a thread.

    `tell` is called often, on the thread that fetches. `stop` is asked as often.
    """

    def __init__(
        self, hub: Hub, model: RemoteModel, folder: Path, tell: Callable[[Progress], None], stop: Callable[[], bool]
    ) -> None:
        self._hub = hub
        self._model = model
        self._folder = folder / model.repo
        self._tell = tell
        self._stop = stop
        self._before = 0  # bytes of files that are done

    def run(self) -> Path:
        """Fetches what is missing; the model's file, or its first shard. Raises UserError and Stopped."""
        try:
            for file in self._model.files:
                self._check_space()
                self._file(file)
                self._before += file.size
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UserError(f"The disk of {self._folder} is full: free some space, and fetch it again.") from error
            raise UserError(f"{self._folder} cannot be written: {error.strerror or error}.") from error
        first = self._target(self._model.files[0])
        read_info(first)  # a file with the right hash may still be no model
        return first

    def _target(self, file: RemoteFile) -> Path:
        target = self._folder / file.name
        if not target.resolve().is_relative_to(self._folder.resolve()):
            raise UserError(f"{self._model.repo} names a file outside its folder ({file.name}): it is not fetched.")
        return target

    def _part(self, file: RemoteFile) -> Path:
        """Where the beginning is kept; of another version of the file, somewhere else."""
        target = self._target(file)
        return target.with_name(f".{target.name}.{(file.sha256 or self._model.commit)[:12]}.part")

    def _check_space(self) -> None:
        left = 0
        for file in self._model.files:
            if not self._target(file).exists():
                part = self._part(file)
                left += file.size - (part.stat().st_size if part.exists() else 0)
        self._folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._folder).free
        if left > free:
            raise UserError(
                f"{self._model.repo} needs {gib(left)} more in {self._folder}, but only {gib(free)} are free: free "
                "some space or choose another folder with --to."
            )

    def _file(self, file: RemoteFile) -> None:
        target, part = self._target(file), self._part(file)
        if target.exists() and target.stat().st_size == file.size:
            return  # it got its name only once its hash was right
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("a+b") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{file.name} is being fetched by another strata-tui.") from None
            have = stream.seek(0, os.SEEK_END)
            if have > file.size:
                stream.truncate(have := 0)
            if have < file.size:
                self._fetch(file, stream, have)
            stream.flush()
            os.fsync(stream.fileno())
            self._check(file, part)
            os.replace(part, target)

    def _fetch(self, file: RemoteFile, stream: IO[bytes], have: int) -> None:
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils._headers import build_hf_headers

        if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
            raise UserError(
                f"{file.name} is larger than {gib(constants.MAX_HTTP_DOWNLOAD_SIZE)}, which the Hub gives only to its "
                f"own program: hf download {self._model.repo} {file.name}; /model and `strata-tui models` find it then."
            )
        url = hf_hub_url(self._model.repo, file.name, revision=self._model.commit, endpoint=self._hub.endpoint)
        counted = _Counted(stream, lambda done: self._say("fetching", done))
        self._say("fetching", have)
        with self._hub.explained(self._model.repo):
            http_get(
                url,
                counted,  # type: ignore[arg-type]  # what it uses of a file is there
                resume_size=have,
                headers=build_hf_headers(),
                expected_size=file.size,
                displayed_filename=file.name,
                tqdm_class=_Silent,
            )

    def _check(self, file: RemoteFile, part: Path) -> None:
        """Compares the hash; a file that has another one is removed, for no part of it can be trusted."""
        if not file.sha256:
            return
        digest = hashlib.sha256()
        with part.open("rb") as stream:
            done = 0
            while data := stream.read(_CHUNK):
                digest.update(data)
                done += len(data)
                self._say("checking", done)
        if digest.hexdigest() != file.sha256:
            part.unlink()
            raise UserError(
                f"{file.name} arrived damaged: its hash is {digest.hexdigest()[:12]}… and not {file.sha256[:12]}…; it "
                "was removed, fetch it again."
            )

    def _say(self, stage: str, done: int) -> None:
        if self._stop():
            raise Stopped
        self._tell(Progress(f"{stage} {self._model.label}", self._before + done, self._model.size))


class _Counted:
    """A file that tells how far it is written. `http_get` writes, and begins again where the server cannot resume."""

    def __init__(self, stream: IO[bytes], told: Callable[[int], None]) -> None:
        self._stream = stream
        self._told = told

    def write(self, data: bytes) -> int:
        written = self._stream.write(data)
        self._told(self._stream.tell())
        return written

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, place: int) -> int:
        return self._stream.seek(place)

    def truncate(self) -> int:
        return self._stream.truncate()


class _Silent:
    """Stands where the library would draw a progress bar."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.n = 0

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: float = 1) -> None:
        """Nothing is drawn."""

    def close(self) -> None:
        """Nothing is open."""
