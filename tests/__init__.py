"""The tests, which compute on one thread in each process, as a process for each core keeps all cores busy.

More threads would wait for each other, by turning in circles: that took more than half of the processor's time.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch and numpy read it, also in the processes that tests start
