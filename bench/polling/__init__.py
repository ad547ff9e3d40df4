"""The common way to do something later, measured: a table of tasks that workers ask for what is due, again and again."""
