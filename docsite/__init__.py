"""The site of the documents: `make docs`. No part of what is installed.

__main__.py   the build, by numbered steps
pages.py      the documents of the repository as pages of the site, with links that hold there
python.py     reference: public Python names, from their signatures and docstrings
files.py      reference: the keys of a pipeline's file, from what its loader asks for
tables.py     reference: commands, broker settings, metrics, errors, from their tables in the code
promises.py   which tests the documents name for their promises, and whether they pass
"""
