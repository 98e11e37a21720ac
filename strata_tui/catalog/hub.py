"""Finds a model's files in a repository on the Hugging Face Hub. The network is asked only here and in pull.py."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..engine.plan import gib
from ..errors import UserError

_USUAL_ENDPOINT = "https://huggingface.co"
_WEB = re.compile(r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|NVFP4\w*|BF16|FP?16|F32))(?=$|[-._/])", re.IGNORECASE
)
_NO_MODEL = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix)(?=$|[-._/])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. `sha256` empty: the Hub does not say."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model in a repository: one file, or all of its shards in order."""

    repo: str
    commit: str
    label: str  # its quantization, or its name where that tells more
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Target:
    """What a person asked for: a repository, and a file, a quantization or nothing more."""

    repo: str
    wanted: str = ""


def parse_target(text: str) -> Target:
    """`owner/repo`, `owner/repo:Q4_K_M`, `owner/repo:file.gguf`, or a page's address. Raises UserError."""
    path = _WEB.sub("", text.strip()).split("?")[0].strip("/")
    repo, _, wanted = path.partition(":")
    owner, slash, rest = repo.partition("/")
    name, _, inner = rest.partition("/")
    if inner:
        inner = re.sub(r"^(?:blob|resolve|tree)/[^/]+/?", "", inner)
        wanted = wanted or inner
    if not owner or not slash or not name:
        raise UserError(f"{text} is no repository: write OWNER/REPO, OWNER/REPO:QUANT or OWNER/REPO:FILE.gguf.")
    return Target(f"{owner}/{name}", wanted)


class Hub:
    """`endpoint`: the Hub's address; None: as HF_ENDPOINT says, else the usual one."""

    def __init__(self, endpoint: str | None = None) -> None:
        self.endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or _USUAL_ENDPOINT).rstrip("/")
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells of each new try on stderr

    @property
    def host(self) -> str:
        """Its name, for the person."""
        return self.endpoint.partition("://")[2] or self.endpoint

    def models(self, repo: str) -> list[RemoteModel]:
        """The repository's models, by size. Raises UserError."""
        from huggingface_hub import HfApi

        with self.explained(repo):
            info = HfApi(endpoint=self.endpoint).model_info(repo, files_metadata=True)
        files = [
            RemoteFile(one.rfilename, one.size or 0, one.lfs.sha256 if one.lfs else "")
            for one in info.siblings or ()
            if one.rfilename.endswith(".gguf") and not _NO_MODEL.search(PurePosixPath(one.rfilename).stem)
        ]
        return _grouped(repo, info.sha or "main", files)

    def find(self, target: Target) -> RemoteModel:
        """The one model that is meant. Raises UserError that names those there are."""
        models = self.models(target.repo)
        if not models:
            raise UserError(f"{target.repo} has no GGUF files: look for a repository whose name ends in GGUF.")
        hits = _meant(models, target.wanted)
        if len(hits) == 1:
            return hits[0]
        names = ", ".join(f"{one.label} ({gib(one.size)})" for one in (hits or models))
        if target.wanted and not hits:
            raise UserError(f"{target.repo} has no {target.wanted}; it has {names}.")
        label = next((one.label for one in (hits or models) if one.label == "Q4_K_M"), (hits or models)[0].label)
        raise UserError(
            f"{target.repo} has {len(hits or models)} models: {names}; name one, as in {target.repo}:{label}."
        )

    @contextmanager
    def explained(self, repo: str) -> Iterator[None]:
        """Turns what the network and the Hub say into a UserError."""
        from huggingface_hub import errors

        try:
            yield
        except errors.HFValidationError as error:
            raise UserError(f"{repo} is no name of a repository: write OWNER/REPO.") from error
        except errors.GatedRepoError as error:
            raise UserError(
                f"{repo} is given only to those who accept its terms: do that at {self.endpoint}/{repo}, then log in "
                "with `hf auth login` or set HF_TOKEN."
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise UserError(
                f"There is no repository {repo} at {self.host}, or it is private: then log in with `hf auth login` "
                "or set HF_TOKEN."
            ) from error
        except errors.OfflineModeIsEnabled as error:
            raise UserError(
                f"{self.host} is not asked, for HF_HUB_OFFLINE is set: unset it to fetch models."
            ) from error
        except errors.HfHubHTTPError as error:
            raise UserError(
                f"{self.host} answered {error.response.status_code} for {repo}: try again later."
            ) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno is None and not _of_the_network(error):
                raise UserError(f"{self.host} sent less than it promised: fetch it again, it goes on there.") from error
            if not _of_the_network(error):
                raise
            why = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"{self.host} cannot be reached ({why}): check the connection and try again.") from error


def _of_the_network(error: BaseException) -> bool:
    """Whether it comes from the library below huggingface_hub, whichever that is, or from a socket."""
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(modules & {"httpx", "httpx2", "httpcore", "httpcore2", "requests"}) or isinstance(
        error, (ConnectionError, TimeoutError)
    )


def _grouped(repo: str, commit: str, files: Sequence[RemoteFile]) -> list[RemoteModel]:
    groups: dict[str, list[RemoteFile]] = {}
    for file in sorted(files, key=lambda file: file.name):
        groups.setdefault(_SHARD.sub("", file.name.removesuffix(".gguf")), []).append(file)
    tags = {stem: _tag(stem) for stem in groups}
    models = []
    for stem, parts in groups.items():
        tag = tags[stem]
        alone = tag and list(tags.values()).count(tag) == 1
        models.append(RemoteModel(repo, commit, tag if alone else stem, tuple(parts)))
    return sorted(models, key=lambda model: (model.size, model.label))


def _tag(stem: str) -> str:
    found = _QUANT.findall(stem)
    return found[-1].upper() if found else ""


def _meant(models: Sequence[RemoteModel], wanted: str) -> list[RemoteModel]:
    """Those that the word may mean: a label, a file's name, or a quantization; all for no word."""
    if not wanted:
        return list(models)
    word = wanted.lower()
    stem = _SHARD.sub("", word.removesuffix(".gguf"))
    for test in (
        lambda model: word == model.label.lower(),
        lambda model: stem in (_stem(model), PurePosixPath(_stem(model)).name),
        lambda model: word.upper() == _tag(_stem(model).upper()),
        lambda model: word in _stem(model),
    ):
        hits = [model for model in models if test(model)]
        if hits:
            return hits
    return []


def _stem(model: RemoteModel) -> str:
    return _SHARD.sub("", model.files[0].name.removesuffix(".gguf")).lower()
