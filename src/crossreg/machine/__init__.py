"""The machine and its processes.

- `devices`: which devices train. `processor`: the CPU. `memory_maps`: room for compiled programs.
- `compilation`: compiled programs are kept on disk.
- `hosts`: several processes that train one model. `stopping`: Ctrl-C and SIGTERM.

May import the packages before it (`crossreg/__init__.py` has the order).
"""
