from waterclock.purgatory.completions import Completions as Completions
