"""Import torch once, then fork the ranks of every job that a test asks for, as torchrun would.

Orders come as JSON, one a line. {"script", "ranks", "environment"} starts a job; the answer is the
process id of the ranks' parent. {"ended": PID} is answered with that process' exit code, or null
while it runs.
"""

import json
import os
import runpy
import signal
import socket
import sys

import torch

torch.optim.SGD([torch.zeros(1)])  # imports what the first optimizer of a process imports


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def train(order, rank, port):
    """Turn this process into one rank of the job."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(order["environment"])
    world = str(order["ranks"])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=world)
    os.environ.update(LOCAL_WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [order["script"]]
    runpy.run_path(order["script"], run_name="__main__")


def launch(order):
    """Fork the ranks and wait for them; the first that fails ends the others."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the whole session gets it; ranks are awaited
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # the orders' answers go to what was standard output
    port = free_port()
    ranks = set()
    for rank in range(order["ranks"]):
        child = os.fork()
        if child == 0:
            train(order, rank, port)
            sys.exit()
        ranks.add(child)
    failed = False
    while ranks:
        child, status = os.wait()
        ranks.remove(child)
        if status and not failed:
            failed = True
            for other in ranks:
                os.kill(other, signal.SIGTERM)
    os._exit(int(failed))


def main():
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        if "ended" in order:
            child, status = os.waitpid(order["ended"], os.WNOHANG)
            print(json.dumps(os.waitstatus_to_exitcode(status) if child else None), flush=True)
            continue
        job = os.fork()
        if job == 0:
            launch(order)
        print(json.dumps(job), flush=True)


if __name__ == "__main__":
    main()
