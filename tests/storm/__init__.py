"""The storm: real traffic over shmtensor while its processes are killed and stopped, and an audit of what that did.

    PYTHONPATH=tests python -m storm --kills 2000 --seed 7      (make storm)
    PYTHONPATH=tests python -m storm.soak --minutes 10          (make soak)

It uses what a program uses: `shmtensor`, `shmtensor.multiprocessing`, and the reports of the manager.

    board       what processes note of themselves, and which waits have which bound
    content     messages whose every byte follows from their number
    stage       what all processes share: queues, a broadcast, locks, tensors
    roles       what the processes do
    crew        the processes that play the roles: start, stop, kill, restart
    supervisor  the schedule: whom, when, with which signal
    audit       what must be so at quiet points, and at the end
    report      the figures for people
    soak        the same traffic without kills, sampled and drawn
"""
