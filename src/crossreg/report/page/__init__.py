"""`crossreg report`: run folders, sweeps and car experiments as one page that opens offline.

folders.py     finds and reads what is below a folder
files.py       reads single files of run folders
rows.py        runs as rows of a sweep
unfinished.py  incomplete runs, sweeps and car experiments, and the reasons
data_names.py  names in place of the paths of data files
lines.py       runs as the curves of the page, with the scores of forecasts by lead
fields.py      test trajectories, and forecasts of them, as text that the page decodes
parts.py       tables of the section Results, and lists, as HTML
settings.py    the section of settings, versions and times, as HTML
write.py       all of it in one file, each section in its place
static/        page.html has the sections, page.js draws the figures of Results; maps.js, slice.js and entries.js draw
               test trajectories; page.css is their style

Imports from `runs`, `designs`, `studies` (sweeps and their fields), and the other parts of `report` but `watch`.
"""
