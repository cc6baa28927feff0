"""Test the jobserver: one limit for threads of macbuild and for children, and a parent's limit if there is one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from macbuild.errors import ToolError
from macbuild.steps.jobserver import Jobserver

CHILD = """
import os, re, sys, time
path = re.search(r"fifo:(\\S+)", os.environ["MAKEFLAGS"])[1]
pipe = os.open(path, os.O_RDWR)
byte = os.read(pipe, 1)
print("have it", flush=True)
sys.stdin.read()
os.write(pipe, byte)
"""


def test_no_more_threads_than_tokens_run_at_once() -> None:
    running, most = 0, 0
    lock = threading.Lock()
    three = threading.Barrier(3, timeout=60)

    def work(server: Jobserver) -> None:
        nonlocal running, most
        with server.token() as token:
            assert token
            with lock:
                running += 1
                most = max(most, running)
            three.wait()
            time.sleep(0.01)
            with lock:
                running -= 1

    with Jobserver(3, {}) as server:
        threads = [threading.Thread(target=work, args=(server,)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == 3


def test_children_share_the_tokens() -> None:
    with Jobserver(1, {}) as server:
        environ = os.environ | server.environ
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "have it\n"
        with server.token(cancelled=lambda: True) as token:
            assert not token
        tries = iter([False, False, True])
        with server.token(cancelled=lambda: next(tries)) as token:
            assert not token
        child.communicate("")
        with server.token() as token:
            assert token


def test_token_comes_back_after_an_error() -> None:
    with Jobserver(1, {}) as server:
        with pytest.raises(KeyError), server.token():
            raise KeyError
        with server.token() as token:
            assert token


def test_variable_has_the_form_of_make() -> None:
    with Jobserver(7, {}) as server:
        (name,) = server.environ
        head, path = server.environ[name].split("fifo:")
        assert (name, head) == ("MAKEFLAGS", " -j7 --jobserver-auth=")
        assert Path(path).is_fifo()
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert not Path(path).exists()
    assert not Path(path).parent.exists()


def test_a_parents_pool_is_used() -> None:
    with Jobserver(2, {}) as parent, Jobserver(9, parent.environ) as inner:
        assert inner.environ["MAKEFLAGS"].endswith(parent.environ["MAKEFLAGS"].partition("fifo:")[2])
        # The parent's two tokens, and the one with which each child starts.
        with inner.token() as one, inner.token() as two, inner.token() as three:
            assert one
            assert two
            assert three
            with inner.token(cancelled=lambda: True) as four:
                assert not four
            with parent.token(cancelled=lambda: True) as five:
                assert not five
        with parent.token(), parent.token() as token:
            assert token


@pytest.mark.parametrize("flags", ["", "-j4", " -j4 --jobserver-auth=3,4", "--jobserver-auth=fifo:/nowhere/pipe", "k"])
def test_without_a_parents_named_pipe_there_is_our_own_pool(flags: str) -> None:
    with Jobserver(2, {"MAKEFLAGS": flags}) as server, server.token() as one, server.token() as two:
        assert one
        assert two
        with server.token(cancelled=lambda: True) as three:
            assert not three


@pytest.mark.parametrize("jobs", [0, -1, 1 << 20])
def test_number_of_jobs_must_make_sense(jobs: int) -> None:
    with pytest.raises(ToolError, match="is not a number of jobs"):
        Jobserver(jobs, {})
