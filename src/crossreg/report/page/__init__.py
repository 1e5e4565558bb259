"""`crossreg report`: run folders, sweeps and car experiments as one page that opens offline.

folders.py     finds and reads what is below a folder
files.py       reads single files of run folders
rows.py        runs as rows of a sweep
unfinished.py  incomplete runs, sweeps and car experiments, and the reasons
data_names.py  names in place of the paths of data files
lines.py       runs as the curves of the page
fields.py      test trajectories as text that the page decodes
parts.py       tables and lists as HTML
settings.py    settings, versions and times as HTML
write.py       all of it in one file
static/        the page itself: HTML, style and scripts

Imports from `runs`, `designs`, `studies` (sweeps and their fields), and the other parts of `report` but `watch`.
"""
