"""Memory that is freed stays at hand."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from nelu_cli.runtime.allocator import keep_freed_memory

def faults(megabytes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(megabytes << 20, np.uint8)[::4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    keep_freed_memory()
first = faults(50)
print(faults(50) / first)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_freed_memory_is_used_again_without_a_page_fault() -> None:
    def again(choice: str) -> float:
        """Page faults of an array after the same size was freed, as a share of the first time's."""
        command = [sys.executable, "-c", SCRIPT, choice]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert again("keep") < 0.1
    assert again("leave") > 0.9  # otherwise there is nothing to do
