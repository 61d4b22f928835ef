import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/**
 * Writes row 0 into a new table, waits for a file, and goes on with 1, 2, ... until another file appears; then
 * prints the numbers in the table. Arguments: JDBC URL, table, both files. Every seventh transaction has twenty rows, every eleventh is rolled back
 * and has numbers below zero; beside them one is open for long, with numbers of its own, and every third of
 * those is rolled back, too.
 */
public class NumberedRows {
    private static final int LONG_FROM = 100_000_000;
    private static final int LONG_TRANSACTION = 200;
    private static final long PAUSE_MS = 15;

    private final Connection quick;
    private final Connection slow;
    private final String insert;
    private int next;
    private int nextSlow = LONG_FROM;
    private int undone = -1;

    private NumberedRows(String url, String table) throws SQLException {
        quick = DriverManager.getConnection(url);
        slow = DriverManager.getConnection(url);
        insert = "INSERT INTO " + table + " VALUES (?, 'some text beside it')";
        try (Statement statement = quick.createStatement()) {
            statement.execute("CREATE TABLE " + table + " (n BIGINT PRIMARY KEY, text VARCHAR)");
        }
        quick.setAutoCommit(false);
        slow.setAutoCommit(false);
    }

    public static void main(String[] words) throws Exception {
        awaitServer(words[0]);
        NumberedRows rows = new NumberedRows(words[0], words[1]);
        rows.row(rows.quick, rows.next++);
        rows.quick.commit();
        System.out.println("ready");
        while (!Files.exists(Path.of(words[2]))) {
            Thread.sleep(PAUSE_MS);
        }
        Path end = Path.of(words[3]);
        for (int round = 1; !Files.exists(end); round++) {
            rows.write(round);
            Thread.sleep(PAUSE_MS);
        }
        rows.slow.commit();
        rows.print(words[1]);
    }

    private static void awaitServer(String url) throws InterruptedException, SQLException {
        for (int left = 600;; left--) {
            try {
                DriverManager.getConnection(url).close();
                return;
            } catch (SQLException error) {
                if (left == 0) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }

    private void write(int round) throws SQLException {
        if (round % 11 == 0) {
            for (int i = 0; i < 20; i++) {
                row(quick, undone--);
            }
            quick.rollback();
            return;
        }
        for (int i = 0; i < (round % 7 == 0 ? 20 : 1); i++) {
            row(quick, next++);
        }
        quick.commit();
        if (round % 5 == 0) {
            row(slow, nextSlow++);
        }
        if (round % (3 * LONG_TRANSACTION) == 0) {
            slow.rollback();
        } else if (round % LONG_TRANSACTION == 0) {
            slow.commit();
        }
    }

    private void row(Connection connection, int number) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            statement.setLong(1, number);
            statement.executeUpdate();
        }
    }

    private void print(String table) throws SQLException {
        try (Statement statement = quick.createStatement();
                ResultSet found = statement.executeQuery("SELECT n FROM " + table + " ORDER BY n")) {
            while (found.next()) {
                System.out.println(found.getLong(1));
            }
        }
        quick.commit();
    }
}
