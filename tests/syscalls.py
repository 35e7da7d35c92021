"""What a process really asked of the kernel, and what a power cut would have left of it.

`record` runs a command under strace. `read_trace` turns the log into `Call`s in the order in which
strace saw them: an acknowledgement that *begins* after an fdatasync *ended* in this list did so in
truth, because a traced thread cannot pass its own stop. `Disk` replays the calls under a folder and
answers what would be on the platter if the power went at that moment: only what was synced, with
directory entries only where the folder was synced too. kill -9 alone proves nothing of the kind,
since the page cache outlives the process.
"""

import random
import re
from dataclasses import dataclass, field
from pathlib import Path

FILE_CALLS = (
    "openat,pwrite64,pwritev,pwritev2,write,writev,fdatasync,fsync,syncfs,rename,renameat,renameat2,"
    "unlink,unlinkat,rmdir,ftruncate,fallocate,mkdir,mkdirat"
)
SOCKET_CALLS = "write,writev,sendto,sendmsg"

_LINE = re.compile(rb"^(?P<pid>\d+)\s+(?P<rest>.*)$", re.DOTALL)
_CALL = re.compile(
    rb"^(?P<name>\w+)\((?P<args>.*)\)\s+= (?P<result>-?\d+|\?)(?P<more>.*)$", re.DOTALL
)
_RESUMED = re.compile(rb"^<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$", re.DOTALL)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_STRING = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_RETURNED = re.compile(rb"^<((?:\\x[0-9a-f]{2})*)>")
_FD = re.compile(rb"^(\d+)<((?:\\x[0-9a-f]{2})*|[^\[>]*\[[^\]]*\]|[^>]*)>")


def strace_command(output: Path, command: list[str]) -> list[str]:
    """The command line that runs `command` under strace and records what matters to durability."""
    calls = ",".join(dict.fromkeys(f"{FILE_CALLS},{SOCKET_CALLS}".split(",")))
    strace = ["strace", "-f", "-yy", "-xx", "-s", "16777216", "-e", "signal=none"]
    return [*strace, "-e", f"trace={calls}", "-o", str(output), *command]


def _unescape(text: bytes) -> bytes:
    if text.count(rb"\x") * 4 == len(text):  # payloads, which may be large
        return bytes.fromhex(text.replace(rb"\x", b"").decode())
    return _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), text)


@dataclass(frozen=True, slots=True)
class Call:
    """One system call; `begin` and `end` are positions in the order of the trace."""

    name: str
    begin: int
    end: int
    args: bytes
    result: int
    target: str
    """Path or socket behind the first argument, empty where it is none."""
    strings: tuple[bytes, ...]
    """Quoted arguments, in order: payloads, or paths."""
    opened: str = ""
    """Path behind the descriptor that the call returned."""

    @property
    def data(self) -> bytes:
        return b"".join(self.strings)

    def number(self, position: int) -> int:
        """The integer argument at `position`, counted from the end (-1 is the last)."""
        return int(self.args.rsplit(b",", -position)[position].strip(), 0)


def _parse(text: bytes, begin: int, end: int) -> Call | None:
    match = _CALL.match(text)
    if match is None or match["result"] == b"?":
        return None
    args = match["args"]
    descriptor = _FD.match(args)
    strings = []
    for string in _STRING.finditer(args):
        assert not string[2], "strace cut a string short: raise -s"
        strings.append(_unescape(string[1]))
    target = _unescape(descriptor[2]).decode("utf-8", "replace") if descriptor else ""
    returned = _RETURNED.match(match["more"])
    opened = _unescape(returned[1]).decode("utf-8", "replace") if returned else ""
    name, result = match["name"].decode(), int(match["result"])
    return Call(name, begin, end, args, result, target, tuple(strings), opened)


def read_trace(path: Path) -> list[Call]:
    """Every finished call of the log, by the order in which each ended."""
    begun: dict[tuple[bytes, bytes], tuple[int, bytes]] = {}
    calls = []
    for number, line in enumerate(path.read_bytes().splitlines()):
        match = _LINE.match(line)
        assert match is not None, line[:200]
        pid, rest = match["pid"], match["rest"]
        if rest.endswith(b"<unfinished ...>"):
            text = rest.removesuffix(b"<unfinished ...>").rstrip()
            begun[pid, text.split(b"(", 1)[0]] = (number, text)
            continue
        begin = number
        if resumed := _RESUMED.match(rest):
            begin, text = begun.pop((pid, resumed["name"]))
            rest = text + resumed["rest"].lstrip()
        if call := _parse(rest, begin, number):
            calls.append(call)
    return calls


@dataclass(slots=True)
class _File:
    """One inode: what the kernel shows, what the platter holds, what lies between."""

    cached: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    position: int = 0

    def write(self, at: int, data: bytes) -> None:
        _patch(self.cached, at, data)
        self.pending.append((at, data))

    def resize(self, size: int) -> None:
        # Treated as synced at once where it shrinks: losing a cut is the milder fault.
        del self.cached[size:]
        self.cached.extend(bytes(size - len(self.cached)))
        self.pending = [(at, data[: max(0, size - at)]) for at, data in self.pending if at < size]
        del self.synced[size:]

    def sync(self) -> None:
        self.synced = bytearray(self.cached)
        self.pending.clear()


def _patch(target: bytearray, at: int, data: bytes) -> None:
    if len(target) < at:
        target.extend(bytes(at - len(target)))
    target[at : at + len(data)] = data


class Disk:
    """The files under one folder as a replayed trace leaves them.

    Args:
        root: only calls on paths below it count.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root.resolve())
        self._live: dict[str, _File] = {}
        self._entries: dict[str, _File] = {}
        self._folders: set[str] = {self._root}
        self._durable_folders: set[str] = {self._root}

    def apply(self, call: Call) -> None:
        """Does to this disk what `call` did to the real one."""
        if call.result < 0:
            return
        handler = getattr(self, f"_{call.name}", None)
        if handler is not None:
            handler(call)

    def power_cut(self, destination: Path, rng: random.Random | None = None) -> None:
        """Writes what a power cut would leave now to `destination`.

        Without `rng` every unsynced write is lost; with it each is kept, lost or torn at a
        512-byte sector, as a real disk may do.
        """
        for folder in sorted(self._durable_folders):
            (destination / folder[len(self._root) :].lstrip("/")).mkdir(parents=True, exist_ok=True)
        for path, file in self._entries.items():
            content = bytearray(file.synced)
            for at, data in file.pending if rng else ():
                kept = rng.choice((0, rng.randrange(0, len(data) + 1, 512), len(data)))
                _patch(content, at, data[:kept])
            (destination / path[len(self._root) :].lstrip("/")).write_bytes(content)

    # --- one method a call -----------------------------------------------------------------

    def _inside(self, path: str) -> bool:
        return path.startswith(self._root + "/") or path == self._root

    def _file(self, call: Call) -> _File | None:
        return self._live.get(call.target)

    def _openat(self, call: Call) -> None:
        if b"O_CREAT" not in call.args and b"O_TRUNC" not in call.args:
            return
        if not self._inside(call.opened):
            return
        file = self._live.setdefault(call.opened, _File())
        file.position = len(file.cached) if b"O_APPEND" in call.args else 0
        if b"O_TRUNC" in call.args:
            file.resize(0)

    def _absolute(self, path: str) -> str:
        assert path.startswith("/") or not self._inside(path), f"a relative path: {path}"
        return path

    def _pwrite64(self, call: Call) -> None:
        if file := self._file(call):
            file.write(call.number(-1), call.data[: call.result])

    def _pwritev(self, call: Call) -> None:
        self._pwrite64(call)

    def _pwritev2(self, call: Call) -> None:
        if file := self._file(call):
            file.write(call.number(-2), call.data[: call.result])

    def _write(self, call: Call) -> None:
        if file := self._file(call):
            file.write(file.position, call.data[: call.result])
            file.position += call.result

    _writev = _write

    def _ftruncate(self, call: Call) -> None:
        if file := self._file(call):
            file.resize(call.number(-1))

    def _fallocate(self, call: Call) -> None:
        if (file := self._file(call)) and b"KEEP_SIZE" not in call.args:
            size = call.number(-2) + call.number(-1)
            if size > len(file.cached):
                file.cached.extend(bytes(size - len(file.cached)))

    def _fdatasync(self, call: Call) -> None:
        if file := self._file(call):
            file.sync()
        elif call.target in self._folders:
            self._sync_folder(call.target)

    _fsync = _fdatasync

    def _syncfs(self, _call: Call) -> None:
        for file in self._live.values():
            file.sync()
        for folder in self._folders:
            self._sync_folder(folder)

    def _sync_folder(self, folder: str) -> None:
        for path in [p for p in self._entries if _parent(p) == folder and p not in self._live]:
            del self._entries[path]
        for path, file in self._live.items():
            if _parent(path) == folder:
                self._entries[path] = file
        self._durable_folders |= {inner for inner in self._folders if _parent(inner) == folder}

    def _rename(self, call: Call) -> None:
        old, new = (self._absolute(s.decode()) for s in call.strings[-2:])
        if old in self._live:
            self._live[new] = self._live.pop(old)

    _renameat = _rename
    _renameat2 = _rename

    def _unlink(self, call: Call) -> None:
        self._live.pop(self._absolute(call.strings[-1].decode()), None)

    _unlinkat = _unlink

    def _mkdir(self, call: Call) -> None:
        path = self._absolute(call.strings[-1].decode())
        if self._inside(path):
            self._folders.add(path)

    _mkdirat = _mkdir


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
