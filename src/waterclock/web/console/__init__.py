"""One live page of what waterclock's processes say of themselves, for a browser.

sources.py    whose statistics and dials are shown: this process's, or those at addresses
console.py    the page's files, and the stream of server-sent events that they are fed by
command.py    `waterclock console URL...`
page/         HTML, CSS and JavaScript as the browser gets them: no build step, nothing from elsewhere
"""
