"""`crossreg report`: run folders, sweeps and car experiments as one page that opens offline.

folders.py   finds and reads what is below a folder
own_data.py  files of one's own by their names
lines.py     runs as the curves that the page draws
fields.py    test trajectories as the text that the page decodes
parts.py     tables and lists as HTML
write.py     all of it in one file
"""
