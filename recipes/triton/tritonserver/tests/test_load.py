"""Test 64 clients with shared memory, and a server that is told to stop in the middle, and again at the end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from backend_testing.service import LOOPBACK, Service, free_port, resident, running
from crowd import CLIENTS, Crowd
from regions import keys_left

SECONDS = float(os.environ.get("MACBUILD_TEST_LOAD_SECONDS") or 5)
# How much the server may grow after the warm-up: the allocator's arenas fill while 64 connections take turns.
GROWTH = 16 << 20


def watched(service: Service, seconds: float) -> list[int]:
    """Return the server's memory in bytes at each tenth of a second."""
    sizes = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sizes.append(resident(service.process.pid))
        time.sleep(0.1)
    return sizes


def test_64_clients_survive_the_end_of_a_server(tmp_path: Path, repository: Path, service: Service) -> None:
    assert service.process.poll() is None
    port = free_port()
    crowd = Crowd(f"{LOOPBACK}:{port}")
    told = []
    try:
        for half in range(2):
            with running(tmp_path, repository, port=port) as ending:
                before = resident(ending.process.pid)
                crowd.up.set() if half else crowd.start()
                sizes = watched(ending, SECONDS / 2)
                crowd.leave()
                begin = time.monotonic()
                assert ending.end(signal.SIGTERM) == 0, ending.words()
            warm, most = max(sizes[: len(sizes) // 3]), max(sizes[len(sizes) // 3 :])
            told.append(
                f"drained in {time.monotonic() - begin:.2f} s;"
                f" {before / (1 << 20):.1f} MiB idle, {warm / (1 << 20):.1f} warm, {most / (1 << 20):.1f} at most"
            )
            assert most - warm < GROWTH, told
    finally:
        crowd.end()
    assert not crowd.problems, crowd.problems[:10]
    counts, latencies = crowd.counts(), crowd.latencies()
    assert min(counts["good"], counts["bad"]) > CLIENTS
    assert keys_left() == []
    shares = [f"{share:g} % {latencies[int(len(latencies) * share / 100)] * 1000:.1f}" for share in (50, 95, 99, 99.9)]
    times = f"{', '.join(shares)}, most {latencies[-1] * 1000:.1f} ms"
    print(f"\n{dict(counts)} in {SECONDS:g} s\n{times}", *told, sep="\n")
