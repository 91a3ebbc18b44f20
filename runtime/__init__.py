"""The lowest layer: time, waiting, tasks, threads, randomness and counters, and no domain logic.

Rule: every clock, sleep, task, thread and random number of the project comes from here, so that a
test or a simulation can use its own instead.
Must not know: any other package.
"""
