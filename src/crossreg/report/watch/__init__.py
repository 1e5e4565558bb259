"""`crossreg watch`: a local page over run folders that follows what trains in them.

inside.py     reading files below one folder, and nothing else
history.py    histories that grow while they are read, and curves over replicas
folders.py    what single runs, sweeps and car experiments say of themselves
trainings.py  which trainings the rows of a sweep were made of
listing.py    all folders below one, looked at again only where something has changed
server.py     the page and its numbers over HTTP
"""
