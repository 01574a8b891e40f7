"""The storm: real traffic over shmtensor while its processes are killed and stopped, and an audit of the result.

    PYTHONPATH=tests python -m storm --kills 2000 --seed 7      (make storm)
    PYTHONPATH=tests python -m storm.soak --minutes 10          (make soak)

It uses the same interfaces as a program: `shmtensor`, `shmtensor.multiprocessing`, and the reports of the manager.

    board       the notes of the processes, and the bounds of their waits
    content     messages whose every byte follows from their number
    stage       the shared objects: queues, a broadcast, locks, tensors
    roles       the work of the processes
    crew        the processes that play the roles: start, stop, kill, restart
    supervisor  the schedule: which process, when, with which signal
    audit       the checks at quiet points, and at the end
    report      tables of the figures
    soak        the same traffic without kills, sampled and drawn
"""
