"""Programs in Python without the seconds that Python takes to import them: a server forks a process for every one.

The process is a program of its own in all that a shell can see: arguments, folder, environment, standard streams, exit code.
``python -m tests.support.warm_python SOCKET MODULE...`` is the server.
"""

from __future__ import annotations

import array
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

_PROGRAM = """#!{python} -IS
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))])
    server.sendall(json.dumps([{function!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(server.recv(1)[0])
"""


@dataclass(frozen=True, slots=True)
class WarmPython:
    address: str

    def program(self, function: str) -> str:
        """The text of a program that calls a function with its arguments.

        :param function: dotted path; it returns the exit code, or nothing.
        """
        return _PROGRAM.format(python=sys.executable, address=self.address, function=function)


@contextmanager
def warm_python(*modules: str) -> Iterator[WarmPython]:
    """Start a server that has imported modules; it is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "socket")
        command = [sys.executable, "-m", __name__, address, *modules]
        with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == b"ready\n", "it ended before it was ready"
                yield WarmPython(address)
            finally:
                server.terminate()


def run_file(arguments: Sequence[str]) -> None:
    """As ``python FILE`` does."""
    runpy.run_path(arguments[0], run_name="__main__")


def _serve(address: str, modules: Sequence[str]) -> None:
    for module in modules:
        import_module(module)
    gc.freeze()  # what is never collected is not copied by every fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for a program
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b"ready\n")
        while True:
            shell, _ = listener.accept()
            with shell:
                if os.fork() == 0:
                    listener.close()
                    _attend(shell)


def _attend(shell: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    streams = array.array("i")
    _, [(_, _, sent)], _, _ = shell.recvmsg(1, socket.CMSG_LEN(3 * streams.itemsize))
    streams.frombytes(sent)
    with shell.makefile("rb") as question:
        function, arguments, folder, environment = json.load(question)
    program = os.fork()
    if program == 0:
        shell.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        module, _, name = function.rpartition(".")
        sys.exit(getattr(import_module(module), name)(arguments))
    for stream in streams:
        os.close(stream)
    status = os.waitpid(program, 0)[1]
    shell.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])
