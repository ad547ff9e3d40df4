from waterclock.purgatory.telling import Teller as Teller
