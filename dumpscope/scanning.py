"""A scan, from paths to the answer: walk, read, measure, store, conclude.

What was read is committed in batches, so a scan that is killed at any moment loses at most the
batches in flight and those of the last moment; the next scan of the same tree starts from there.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from typing import TYPE_CHECKING, Literal, Union

from dumpscope.conclude import check_files, conclude
from dumpscope.cutting import cut
from dumpscope.errors import LostProcessesError, OptionsError, StoreError
from dumpscope.executors import BATCH_FILES, Executor, count_jobs
from dumpscope.growth import is_growing
from dumpscope.model import DumpFile, FileResult, Place, Portion, ReadFailure, Scan, ScanOptions
from dumpscope.plugins import ReaderRegistry, load_readers
from dumpscope.processes import Recipe, seldom_collecting
from dumpscope.records import record
from dumpscope.remote.mounts import Mount, mounts, use_mounts
from dumpscope.roots import absolute
from dumpscope.store import Store
from dumpscope.version import VERSION
from dumpscope.walk import Walk, walk

if TYPE_CHECKING:
    from dumpscope.examine import Examiner

__all__ = ["Progress", "load_scan", "scan", "scan_into"]

MOST_GROWING = 100
"""How many files that are still being written are named."""

COMMIT_S = 0.2
"""How long what was read may wait to be stored with more. A transaction takes as long as storing
what ten large files gave, and these come one by one."""

Path = Union[str, "os.PathLike[str]"]


@record(frozen=True, slots=True)
class Progress:
    """How far a scan is. Totals are final once `walked` is true."""

    files: int
    bytes: int
    files_seen: int
    bytes_seen: int
    walked: bool


def scan(
    paths: Path | Sequence[Path],
    options: ScanOptions | None = None,
    *,
    store: Store | None = None,
    progress: Callable[[Progress], None] | None = None,
    config: Mapping[str, object] | None = None,
    missing: str | None = None,
    history: bool = True,
) -> Scan:
    """Scan dump folders or files and say which operators went wrong first.

    Parameters
    ----------
    paths
        One or several folders or files, or URLs of them. They are only read.
    options
        What to compute and when to call it a failure.
    store
        Where results are kept; without one they live in a temporary file for the call.
    progress
        Called after every batch of files.
    config
        What an acl.json asked for (`aclconfig.AclConfig.facts`).
    missing
        The dump folder of an acl.json that is not there: an empty one, as far as a scan goes.
    history
        Look up the first offender in all steps, for a page (`Scan.history`).

    Returns
    -------
    Scan
        Findings in ranking order, counts, failures, and the exit status.

    Raises
    ------
    OptionsError
        A path does not exist or an option has no meaning.
    ConfigError
        The rules, the rank map or the baseline cannot be read.
    StoreError
        The store cannot be written.
    LostProcessesError
        Hundreds of files ended the processes that read them.
    ClusterError
        The cluster of the executor dask cannot be reached, differs from this program, or is lost.
    """
    options = options or ScanOptions()
    if store is not None:
        scan_id = scan_into(
            store, paths, options, progress=progress, config=config, missing=missing
        )
        return conclude(store, scan_id, options, history=history)
    import tempfile

    with (
        tempfile.TemporaryDirectory(prefix="dumpscope-") as folder,
        Store.open(os.path.join(folder, "scans.db")) as own,
    ):
        scan_id = scan_into(own, paths, options, progress=progress, config=config, missing=missing)
        return conclude(own, scan_id, options, history=history)


def load_scan(
    store: Store,
    scan_id: str | None = None,
    options: ScanOptions | None = None,
    *,
    history: bool = True,
) -> Scan:
    """Compute the answer of a stored scan again, the newest without `scan_id`.

    `options` replaces what the scan was asked for; `history` as for `scan`.

    Raises `StoreError` when the store holds no such scan.
    """
    if scan_id is None:
        newest = store.latest()
        if newest is None:
            raise StoreError(f"{store.path}: holds no scan yet; run: dumpscope scan PATH")
        scan_id = newest.scan_id
    options = options or store.scan_info(scan_id).options
    return conclude(store, scan_id, options, history=history)


def scan_into(
    store: Store,
    paths: Path | Sequence[Path],
    options: ScanOptions,
    *,
    progress: Callable[[Progress], None] | None = None,
    config: Mapping[str, object] | None = None,
    missing: str | None = None,
) -> str:
    """Read and measure everything below `paths` into the store. Returns the scan's id.

    Files whose record is in the store and which did not change are not read again.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    registry = load_readers()
    if options.reader is not None:
        registry.named(options.reader)
    check_files(options)
    walker: Walk | NothingToWalk
    if missing is not None and not paths:
        walker = NothingToWalk(missing)
    else:
        walker = walk(list(paths), companions=registry.companions)
    sources = [absolute(path) for path in paths]
    with closing(walker), ExitStack() as opened:
        apart = store.was_hurt(walker.root)
        make_executor = _prepare_executor(options, walker.remote, apart, opened)
        started = time.monotonic()
        scan_id = store.begin(walker.root, sources, options, config, VERSION)
        growing: list[str] = []
        state: Literal["finished", "interrupted"] | None = "interrupted"
        try:
            _read_all(store, scan_id, walker, make_executor, registry, options, progress, growing)
            state = "finished"
        except LostProcessesError:
            state = None  # as if it had been killed itself: the next one takes the same care
            raise
        finally:
            if state is not None:
                store.finish(
                    scan_id,
                    {
                        "files": walker.files,
                        "bytes": walker.bytes,
                        "skipped": sum(walker.skipped.values()),
                        "skipped_by_kind": dict(walker.skipped),
                        "growing": growing,
                    },
                    time.monotonic() - started,
                    state,
                )
    return scan_id


def _prepare_executor(
    options: ScanOptions, waits: bool, apart: bool, opened: ExitStack
) -> Callable[[], Executor]:
    """Return what makes the executor once something is to be read; `opened` will close it.

    A scan that nobody can do does not begin, so a cluster is called right away. `waits` says that
    files are behind requests, `apart` that this process had better read none itself.
    """
    jobs = count_jobs(options.jobs)
    if options.executor == "dask":
        from dumpscope.cluster.executor import open_dask_executor

        cluster = open_dask_executor(options.scheduler, jobs, waits=waits)
        opened.enter_context(closing(cluster))
        return lambda: cluster
    if options.scheduler is not None:
        raise OptionsError(
            f"--scheduler {options.scheduler}: only the executor dask has one; add --executor dask"
        )

    def make() -> Executor:
        from dumpscope.sharing import open_executor

        executor = open_executor(options.jobs, waits=waits, apart=apart)
        return opened.enter_context(closing(executor))

    return make


def _read_all(
    store: Store,
    scan_id: str,
    walker: Walk | NothingToWalk,
    make_executor: Callable[[], Executor],
    registry: ReaderRegistry,
    options: ScanOptions,
    progress: Callable[[Progress], None] | None,
    growing: list[str],
) -> None:
    """Read what is not known yet; `growing` takes the names of files still being written."""
    signature = _signature(registry, options)
    done_files = done_bytes = 0

    def tell() -> None:
        if progress is not None:
            progress(Progress(done_files, done_bytes, walker.files, walker.bytes, walker.finished))

    def unread() -> Iterator[DumpFile]:
        nonlocal done_files, done_bytes
        for batch in _batches(store, scan_id, walker, options):
            unknown = store.reuse(scan_id, batch, signature)
            done_files += sum(len(item) if isinstance(item, Portion) else 1 for item in batch)
            done_files -= len(unknown)
            done_bytes += sum(item.size for item in batch) - sum(file.size for file in unknown)
            tell()
            yield from unknown

    with seldom_collecting(), closing(_Commits(store, scan_id, signature)) as commits:
        files = unread()
        first = next(files, None)
        if first is None:
            return
        executor = make_executor()
        batches = executor.group(chain((first,), files))
        for results in executor.run(Worker(registry, options), batches):
            commits.take(results)
            growing += (
                result.file.relative
                for result in results
                if result.failures
                and len(growing) < MOST_GROWING
                and is_growing(result.file, time.time_ns())
            )
            done_files += len(results)
            done_bytes += sum(result.file.size for result in results)
            tell()


class _Commits:
    """Stores what was read: soon, but not each large file in a transaction of its own."""

    def __init__(self, store: Store, scan_id: str, signature: str) -> None:
        self._store = store
        self._scan_id = scan_id
        self._signature = signature
        self._waiting: list[FileResult] = []
        self._stored_at = time.monotonic()

    def take(self, results: Sequence[FileResult]) -> None:
        self._waiting += results
        if len(self._waiting) >= BATCH_FILES or time.monotonic() - self._stored_at >= COMMIT_S:
            self.close()

    def close(self) -> None:
        """Store what waits, also where the scan was stopped."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._store.add(self._scan_id, waiting, self._signature)
        self._stored_at = time.monotonic()


class NothingToWalk:
    """Stands for the walk of a folder that does not exist."""

    def __init__(self, root: str) -> None:
        self.remote = False
        self.root = root
        self.files = 0
        self.bytes = 0
        self.finished = True
        self.skipped: Counter[str] = Counter()

    def portions(self) -> Iterator[DumpFile | Portion | ReadFailure]:
        return iter(())

    def close(self) -> None:
        """There is nothing to close."""


class Worker:
    """Examines batches of files, in any thread: each has an examiner and a buffer of its own.

    `recipe` is how another process makes the same one.
    """

    def __init__(self, registry: ReaderRegistry, options: ScanOptions) -> None:
        self.recipe = Recipe(
            f"{__name__}:{make_worker.__name__}",
            (options, mounts()),
            _signature(registry, options),
        )
        self._registry = registry
        self._options = options
        self._local = threading.local()

    def __call__(self, files: Sequence[DumpFile]) -> list[FileResult]:
        return self.prepare().examine_batch(files)

    def name_reader(self, file: DumpFile) -> str:
        """Name the reader that reads a file, "" when there is none."""
        return self.prepare().name_reader(file)

    def prepare(self) -> Examiner:
        """Make the examiner of this thread, if it has none, and load what it needs."""
        examiner: Examiner | None = getattr(self._local, "examiner", None)
        if examiner is None:
            # Imported here: a scan that finds everything in the store reads nothing.
            from dumpscope.examine import Examiner

            examiner = self._local.examiner = Examiner(
                self._registry,
                level=self._options.stats,
                near_limit_share=self._options.near_limit_share,
                reader=self._options.reader,
            )
        return examiner


def make_worker(options: ScanOptions, given: Sequence[Mount] = ()) -> Worker:
    """Make a worker in a process that was started to help, ready to begin."""
    use_mounts(given)
    worker = Worker(load_readers(), options)
    worker.prepare()
    return worker


def _batches(
    store: Store, scan_id: str, walker: Walk | NothingToWalk, options: ScanOptions
) -> Iterator[list[DumpFile | Portion]]:
    """Take files from the walk in batches; what it could not reach goes to the store."""
    for batch in cut(walker.portions()):
        failures = [item for item in batch if isinstance(item, ReadFailure)]
        if failures:
            store.add_failures(scan_id, failures)
        files = [item for item in batch if not isinstance(item, ReadFailure)]
        if options.steps or options.ranks:
            files = [item for item in files if _is_wanted(item.place, options)]
        if files:
            yield files


def _is_wanted(place: Place, options: ScanOptions) -> bool:
    """Whether `--step` and `--rank` ask for a place; one that says neither may hold them."""
    if options.steps and place.step is not None and place.step not in options.steps:
        return False
    return not options.ranks or place.device is None or place.device in options.ranks


def _signature(registry: ReaderRegistry, options: ScanOptions) -> str:
    """What must be the same for a stored record to be what reading again would give."""
    return "|".join(
        (
            VERSION,
            *(f"{plugin.name} {plugin.package} {plugin.version}" for plugin in registry.plugins),
            options.stats,
            repr(options.near_limit_share),
            options.reader or "",
        )
    )
