"""What goes wrong in the second of two processes; imported by both, so it imports little."""

import os
import signal
import time
from datetime import timedelta

from skh2edl.training import distributed as processes


def die_as_second():
    if os.environ["LOCAL_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def stall_as_second():
    processes.TIMEOUT = timedelta(seconds=3)
    fabric = processes.make_fabric("cpu", 2, "ddp", "32-true")
    with processes.naming_lost_processes(fabric):
        if fabric.global_rank == 1:
            time.sleep(600)
        fabric.barrier()


def fail_as_second():
    if os.environ["LOCAL_RANK"] == "1":
        raise FloatingPointError("the loss became NaN")
    time.sleep(1)
    raise processes.LostProcessError("a companion is gone")
