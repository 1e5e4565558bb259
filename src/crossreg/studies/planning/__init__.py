"""`crossreg plan`: jobs, memory, time and efficiency of a sweep on other devices, without running it.

`settings.py` has the flags, `demand.py` counts the replicas to train, `device_costs.py` has the measured costs of
each device, `packing.py` divides replicas into jobs, `scheduling.py` puts jobs on devices, and `plan.py` chooses among
the ways to run a sweep.

May import what `studies` may, and `studies/sweep`.
"""
