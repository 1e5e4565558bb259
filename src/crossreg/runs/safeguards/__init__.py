"""What keeps a folder intact while it is written, and shows a reader whether it is.

    locks       one process at a time in a folder
    manifest    the SHA-256 of every file: corrupted ones are detected, and nobody else's are replaced
    snapshots   where snapshots are written, and where a killed training resumes from them
    saving      how often a snapshot is written
    versions    the conditions under which a training may resume to the same bits

Works the same for folders of runs, sweeps and car experiments. May import `runs.file_names` and
what comes before `runs`.
"""
