"""Training by Algorithm 1, of many replicas at once.

- `step.py`: one train step of θ and ψ, and one reg step of ρ. `rollouts.py`: the loss of rollouts.
- `compiled.py`: loops over steps and replicas as compiled programs; decides after which steps ρ is updated (how many
  updates that makes: `TrainConfig.reg_updates_until`).
- `loop.py`: `train_replicas`, which drives them from the host and reports.
- `replicas.py`, `packed.py`: models, tasks and states with a replica axis; parameters as one vector.
- `cohort.py`: models and tasks from configs, and checks that they can be trained.
- `feeding.py`, `parallel.py`: data in files, read ahead; replicas or batches divided among devices.
- `checkpoint.py`: arrays on disk. `cost.py`: how long a training takes, from measured rates (`cost.json`).

May import the packages before it (`crossreg/__init__.py` has the order).
"""
