package orders;

import java.time.LocalDate;

/**
 * Times as microseconds since 1970, and as the texts that the orders and their results have.
 *
 * <p>Rule 1: a text has six digits behind the second and is UTC: 2026-01-01T00:00:00.000000Z, or with a blank and no Z.
 */
public final class Times {
    private static final long SECOND_US = 1_000_000L;
    private static final long DAY_S = 86_400L;
    private static final int LENGTH = 26; // without the Z

    private Times() {}

    /** Microseconds of such a text. */
    public static long us(String text) {
        long day = LocalDate.of(digits(text, 0, 4), digits(text, 5, 2), digits(text, 8, 2)).toEpochDay();
        long second = digits(text, 11, 2) * 3600L + digits(text, 14, 2) * 60L + digits(text, 17, 2);
        return (day * DAY_S + second) * SECOND_US + digits(text, 20, 6);
    }

    /** The text of a time; `between` stands between day and hour, `behind` at its end. */
    public static String text(long us, char between, String behind) {
        long seconds = Math.floorDiv(us, SECOND_US);
        LocalDate day = LocalDate.ofEpochDay(Math.floorDiv(seconds, DAY_S));
        long second = Math.floorMod(seconds, DAY_S);
        char[] letters = new char[LENGTH];
        put(letters, 0, 4, day.getYear(), '-');
        put(letters, 5, 2, day.getMonthValue(), '-');
        put(letters, 8, 2, day.getDayOfMonth(), between);
        put(letters, 11, 2, second / 3600, ':');
        put(letters, 14, 2, second / 60 % 60, ':');
        put(letters, 17, 2, second % 60, '.');
        put(letters, 20, 6, Math.floorMod(us, SECOND_US), ' ');
        return new String(letters).concat(behind);
    }

    private static int digits(String text, int from, int count) {
        int number = 0;
        for (int place = from; place < from + count; place++) {
            number = number * 10 + text.charAt(place) - '0';
        }
        return number;
    }

    private static void put(char[] letters, int from, int count, long number, char behind) {
        for (int place = from + count - 1; place >= from; place--) {
            letters[place] = (char) ('0' + number % 10);
            number /= 10;
        }
        if (from + count < LENGTH) {
            letters[from + count] = behind;
        }
    }
}
