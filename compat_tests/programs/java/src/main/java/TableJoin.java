import java.util.Arrays;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;

/**
 * Answers each record of a topic with what two tables have for its key, until it is ended.
 *
 * <p>TableJoin BOOTSTRAP APPLICATION FROM TABLE GLOBAL_TABLE TO STATE_FOLDER [CONFIG=VALUE...]. An answer is
 * "value/table/global", with "null" for what a table does not have. With topology.optimization=all
 * the tables are restored from their topics, and there is no changelog beside them.
 */
public final class TableJoin {
  private TableJoin() {}

  public static void main(String[] arguments) throws InterruptedException {
    String[] settings = Arrays.copyOfRange(arguments, 7, arguments.length);
    RunningStreams.run(
        topology(arguments[2], arguments[3], arguments[4], arguments[5]),
        RunningStreams.config(arguments[0], arguments[1], arguments[6], settings));
  }

  private static StreamsBuilder topology(String from, String one, String all, String to) {
    StreamsBuilder builder = new StreamsBuilder();
    KTable<String, String> table = builder.table(one);
    GlobalKTable<String, String> global = builder.globalTable(all);
    KStream<String, String> asked = builder.stream(from);
    asked
        .leftJoin(table, (value, found) -> value + "/" + found)
        .leftJoin(global, (key, value) -> key, (value, found) -> value + "/" + found)
        .to(to);
    return builder;
  }
}
