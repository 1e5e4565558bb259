"""`crossreg watch`: a local page over run folders that follows running trainings.

inside.py     reads files below one folder, without following links
history.py    histories that grow while they are read, and their curves over replicas
folders.py    readers of single runs, sweeps and car experiments
trainings.py  the trainings of a row of a sweep
listing.py    all folders below one, read again only where something has changed
server.py     the page and its numbers over HTTP
static/       the page itself: HTML, style and scripts

Imports from `runs`, `designs`, `studies` (the trainings of a trial), `report/shared` and `report/figures`.
"""
