"""`BlobSet` holds what the sets of both blob layouts share: the ranks, the maps, the headers of subfiles.

Knows: which rank has which subfile, the agreement on maps. Does not know: how subfiles are opened and written.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from pnc_vol.blob.index import ElementIndex
from pnc_vol.blob.layout import BlobFiles, BlobLayout
from pnc_vol.blob.map_agreement import Agreed, MapAgreement
from pnc_vol.blob.posted_runs import PostedRuns
from pnc_vol.file.session import FileSet, Session
from pnc_vol.format.model import Header
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options

__all__ = ["BlobSet"]

Files = TypeVar("Files", bound=BlobFiles)


class BlobSet(FileSet, Generic[Files]):
    """The subfiles of an open file.

    Parameters
    ----------
    comm : Comm, all ranks.
    path : str, the name of the set.
    make_files : callable, makes `files` of a function that gives the index of a map.
    made_layout : class derived from BlobLayout
    count, nprocs : int, subfiles, and the processes that made them.
    subfile_of : list of int, the subfile of each rank.

    Attributes
    ----------
    files : BlobFiles, what all layouts of the set know.
    """

    def __init__(
        self,
        comm: Comm,
        path: str,
        make_files: Callable[[Callable[[int], ElementIndex]], Files],
        made_layout: type[BlobLayout],
        *,
        count: int,
        nprocs: int,
        subfile_of: list[int],
    ) -> None:
        self.comm, self.path, self.count, self.nprocs = comm, path, count, nprocs
        self.files = make_files(self._index)
        self._agreement = MapAgreement(comm, self.files, subfile_of)
        self._made_layout = made_layout

    def layout(self, options: Options) -> BlobLayout:
        """Return a layout over these files."""
        made = self._made_layout(options)
        made.files = self.files
        return made

    @abstractmethod
    def read_index(self, k: int) -> ElementIndex:
        """Read from the subfiles where the elements of a map are."""

    def _index(self, k: int) -> ElementIndex:
        known = self._agreement.index_of_lists(k)
        return self.read_index(k) if known is None else known

    def agree(self, session: Session, canonical: Header, uids: tuple[int, ...], posted: PostedRuns) -> Agreed:
        """Give variables their maps (collective); see `MapAgreement.agree`."""
        defs = session.defs
        return self._agreement.agree(canonical, uids, defs.tree.datasets, posted, defs.decompositions)

    def supplements(self, number: int, uids: Sequence[int], wanted: Iterable[int]) -> dict[int, int]:
        """Return the elements of each supplement that a subfile has, by the number of its variable in the canonical
        header.

        wanted : iterable of uid, the variables that have one or get one; all are in subfile 0.
        """
        files, chosen = self.files, set(wanted) if number == 0 else set()
        return {
            i: files.lookup(files.assigned[uid]).index.coverage().none for i, uid in enumerate(uids) if uid in chosen
        }
