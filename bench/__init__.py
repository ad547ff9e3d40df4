"""Behind `waterclock bench`: contenders side by side in one run, their answers checked beside their speed."""
