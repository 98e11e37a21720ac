"""Writing the shown chat to a file, off the UI thread."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..sessions.export import file_name, to_markdown, write_export
from ..sessions.store import Store


async def export_markdown(store: Store, session: int, path: str) -> Path:
    """Writes the shown branch as markdown and returns the path written. Raises UserError.

    `path`: a file, a folder, or empty for the current folder. An existing file is never written over.
    """
    return await asyncio.to_thread(_export, store, session, path)


def _export(store: Store, session: int, path: str) -> Path:
    store.flush()  # what was sent is in the file, too
    info = store.session(session)
    target = Path(path).expanduser() if path else Path.cwd()
    if target.is_dir():
        target = target / file_name(info, "md")
    return write_export(to_markdown(info, store.branch(session)), target.absolute())
